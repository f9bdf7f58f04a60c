"""CPython's own tests of the language pass as compiled functions, too.

`DIFFER` has those that do not, by what they ask. None is left out because
it is slow.
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

#: What a test asks -> the names of those that fail.
DIFFER = {
    "when an object dies": """
        test_container_iterator test_oob_indexing_dictiter_iternextitem
        test_ref_counting_behavior test_nokeepref test_copy_weakkeydict
        test_copy_weakvaluedict test_deepcopy_weakkeydict
        test_deepcopy_weakvaluedict test_reference_loop
        test_lru_cache_weakrefable""",
    "how large an object is, or where it lies": """
        test_splittable_popitem test_Set_hash_matches_frozenset
        test_deepcopy_keepalive""",
    "frames, tracebacks and what depends on them": """
        test_contextmanager_traceback test_exit_exception_traceback
        test_iteration_full_tracebacks test_basics_ExceptionGroup_fields
        test_nested_exception_group_tracebacks test_accepts_traceback
        test_split_BaseExceptionGroup
        test_split_BaseExceptionGroup_subclass_no_derive_new_override
        test_split_ExceptionGroup_subclass_no_derive_no_new_override
        test_default_capture test_default_wildcard test_no_default
        test_only_default_capture test_only_default_wildcard
        test_unreachable_code test_exit_exception_explicit_none_context""",
    "the code or the name of a generator, or how it ends": """
        test_name test_generator_gi_yieldfrom test_genfunc
        test_returning_itercoro testRaisedGeneratorExit1""",
    "a method that is an object with a `__call__`": """
        test_getting_field_calls_get test_init_calls_set
        test_setting_field_calls_set""",
    "C code's way with subclasses of its classes": """
        test_int_subclass_with_index test_index_returns_int_subclass
        test_dict_delitem test_dict_pop test_dict_popitem
        test_key_change_during_iteration""",
    "a method of a class with parameters": """
        test_copy test_unbound_methods""",
    "an error of a `super()` that can find nothing": """
        test_obscure_super_errors""",
    "the words of an error": """
        test_disallow_instantiation"""}


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
    assert [line for line in failed if line.split()[0] not in known] == []
    assert int(passed.split()[-1]) > 0
