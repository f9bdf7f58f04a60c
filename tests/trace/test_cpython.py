"""CPython's own tests of the language pass as compiled functions, too.

`DIFFER` has those that do not, by what they ask. Modules about weak
references, tracebacks and threads are not among these, nor the slowest.
"""

import importlib.util
import subprocess
import sys

import pytest

#: The modules of CPython's `test`.
MODULES = """
    abc augassign baseexception binop bisect bool call class collections
    compare contains contextlib contextlib_async copy csv dataclasses
    decorators defaultdict dict dictcomps dictviews
    dynamicclassattribute enum except_star exception_group
    exception_variations format fractions fstring funcattrs functools
    generators genericalias genericclass global grammar hash heapq index
    int isinstance iter iterlen keywordonlyarg list named_expressions
    numeric_tower opcodes operator ordered_dict patma
    positional_only_arg property raise reprlib richcmp scope sort string
    subclassinit super textwrap tuple typechecks types typing userdict
    userlist weakset with yield_from""".split()

#: What a test asks -> the modules and names of those that fail.
DIFFER = {
    "when an object dies": """
        dict.test_container_iterator
        dict.test_oob_indexing_dictiter_iternextitem
        iter.test_ref_counting_behavior contextlib.test_nokeepref
        copy.test_copy_weakkeydict copy.test_copy_weakvaluedict
        copy.test_deepcopy_weakkeydict copy.test_deepcopy_weakvaluedict
        ordered_dict.test_reference_loop
        functools.test_lru_cache_weakrefable""",
    "how large an object is, or where it lies": """
        dict.test_splittable_popitem
        collections.test_Set_hash_matches_frozenset
        copy.test_deepcopy_keepalive""",
    "frames, tracebacks and what depends on them": """
        contextlib.test_contextmanager_traceback
        contextlib.test_exit_exception_traceback
        exception_group.test_iteration_full_tracebacks
        exception_group.test_basics_ExceptionGroup_fields
        exception_group.test_nested_exception_group_tracebacks
        raise.test_accepts_traceback
        exception_group.test_split_BaseExceptionGroup
        exception_group.test_split_BaseExceptionGroup_subclass_no_derive_new_override
        exception_group.test_split_ExceptionGroup_subclass_no_derive_no_new_override
        patma.test_default_capture patma.test_default_wildcard
        patma.test_no_default patma.test_only_default_capture
        patma.test_only_default_wildcard patma.test_unreachable_code
        contextlib_async.test_exit_exception_explicit_none_context""",
    "the code or the name of a generator, or how it ends": """
        generators.test_name generators.test_generator_gi_yieldfrom
        types.test_genfunc types.test_returning_itercoro
        with.testRaisedGeneratorExit1""",
    "a method that is an object with a `__call__`": """
        dataclasses.test_getting_field_calls_get
        dataclasses.test_init_calls_set
        dataclasses.test_setting_field_calls_set""",
    "C code's way with subclasses of its classes": """
        index.test_int_subclass_with_index
        index.test_index_returns_int_subclass ordered_dict.test_dict_delitem
        ordered_dict.test_dict_pop ordered_dict.test_dict_popitem
        ordered_dict.test_key_change_during_iteration""",
    "a method of a class with parameters": """
        genericalias.test_copy genericalias.test_unbound_methods""",
    "an error of a `super()` that can find nothing": """
        super.test_obscure_super_errors""",
    "the words of an error": """
        csv.test_disallow_instantiation"""}


@pytest.mark.slow(sample=2)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="3.11's tests")
@pytest.mark.skipif(not importlib.util.find_spec("test.support"),
                    reason="CPython is installed without its tests")
@pytest.mark.parametrize("module", MODULES)
def test_a_test_of_cpythons_passes_compiled(module):
    done = subprocess.run(
        [sys.executable, "-m", "tests.trace.cpython", f"test_{module}"],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *failed, passed = done.stdout.splitlines()
    known = {name for names in DIFFER.values() for name in names.split()}
    assert [line for line in failed
            if f"{module}.{line.split()[0]}" not in known] == []
    assert int(passed.split()[-1]) > 0
