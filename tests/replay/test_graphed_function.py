"""Replays give what the program gives, whatever the user holds on to."""

import gc

import pytest
import torch

from minicompile import split
from minicompile.replay.cuda import graphs as module
from minicompile.replay.cuda.graphs import GraphedFunction
from tests.replay.fake import FakeDevice
from tests.split.judge import boxed, compiled


def inference(function, **settings):
    """A graphed forward alone, on the fake device."""
    return GraphedFunction(lambda inputs: function(*inputs), None,
                           FakeDevice(), **settings)


def values(count=4):
    """Different inputs, all alive, so that no two lie at one address."""
    return [torch.randn(3, 4) for _ in range(count)]


def test_first_call_runs_then_records_then_replays():
    region = inference(lambda x: (x + 1,))
    for x in values(5):
        torch.testing.assert_close(region.forward([x]), (x + 1,))
    assert region.stats["first call"] == 1
    assert region.stats["replayed"] == 4
    assert region.stats["recorded"] == 1


def test_an_input_that_stays_is_bound_and_not_copied():
    x = torch.randn(8)
    region = inference(lambda x: (x * 2,))
    for _ in range(3):
        x += 1
        torch.testing.assert_close(region.forward([x]), (x * 2,))
    assert region.stats["recorded"] == 1
    assert region.forward.recordings[0].copied == {}


def test_a_static_input_that_is_replaced_gets_its_own_recording():
    first, second = torch.randn(4), torch.randn(4)
    region = inference(lambda w, x: (w * x,), static={0})
    for w in (first, first, second, first, second, second):
        x = torch.randn(4)
        torch.testing.assert_close(region.forward([w, x]), (w * x,))
    assert all(r.bound.keys() == {0} for r in region.forward.recordings)
    assert len(region.forward.recordings) == 2


@pytest.mark.parametrize("moves", [False, True])
def test_an_input_that_is_written_to_is_written_in_every_call(moves):
    def function(x, y):
        x.add_(y)
        return x * 2,

    region = inference(function, written={0})
    x, y = torch.zeros(3, 8)[:, ::2], torch.ones(3, 4)
    kept = []
    for call in range(1, 6):
        if moves:
            x = torch.zeros(3, 8)[:, ::2].copy_(x)
            kept.append(x)
        found, = region.forward([x, y])
        assert x.eq(call).all() and found.eq(2 * call).all()
    assert region.stats["replayed"] == 4


def test_an_input_that_is_passed_on_is_itself():
    """Else autograd takes its memory for `.grad`, and twice."""
    region = inference(lambda x: (x, x.t(), x, x + 1))
    for x in values():
        one, turned, two, _ = region.forward([x])
        assert one is x and two is x and turned.equal(x.t())
    assert region.stats["replayed"] == 3


def test_an_output_held_from_an_earlier_call_keeps_its_value():
    region = inference(lambda x: (x.exp(), x.sum()))
    given = values(6)
    held = [region.forward([x]) for x in given]
    for x, found in zip(given, held, strict=True):
        torch.testing.assert_close(found, (x.exp(), x.sum()))


def test_a_call_may_be_given_the_result_of_the_same_call():
    region = inference(lambda x: (x * 2 + 1,))
    x = torch.zeros(3)
    for _ in range(6):
        x, = region.forward([x])
    assert x.tolist() == [63.0] * 3


def test_writing_to_an_output_changes_no_later_result():
    region = inference(lambda x: (x + 1,))
    for x in values():
        found, = region.forward([x])
        torch.testing.assert_close(found, x + 1)
        found.zero_()


def test_outputs_of_one_memory_are_cloned_one_by_one():
    def function(x):
        y = x + 1
        return y, y.view(-1), y[1:], y.t()
    region = inference(function)
    region.forward(values(1))  # the program itself
    for x in values():
        for found, wanted in zip(region.forward([x]), function(x)):
            assert found.equal(wanted)
            assert found.stride() == wanted.stride()
            found.zero_()


@pytest.mark.parametrize("wanted", [True, False])
def test_results_that_share_memory_still_share_it(wanted):
    """The runtime makes views of what a replay gives."""
    def function(x, w):
        y = x * w + 1
        return y, y.view(-1), x, y[1:], y.t(), w[0]

    x, w = torch.randn(3, 4), torch.randn(3, 4, requires_grad=wanted)
    _, joint, pair = compiled(function, (x, w))
    region = GraphedFunction(
        boxed(pair.forward), pair.backward and boxed(pair.backward),
        FakeDevice(), visible=joint.forward_outputs)
    run = split.make_runtime(joint, pair, region.forward, region.backward)
    for x in values(5):
        found = run([x, w])
        assert found[2] is x and found[5].data_ptr() == w.data_ptr()
        for each, right in zip(found, function(x, w), strict=True):
            assert each.equal(right) and each.stride() == right.stride()
        assert {each.untyped_storage().data_ptr() for each in
                found[:2] + found[3:5]} == {found[0].data_ptr()}
        if wanted:
            found[4].sum().backward()
            assert w.grad.equal(x)
            w.grad = None
    assert region.stats["replayed"] >= 4


def test_an_output_in_the_memory_of_an_input_is_that_of_this_call():
    region = inference(lambda x, w: (x[1:], w, x + 1), static={1})
    w = torch.randn(3)
    for x in values():
        part, same, _ = region.forward([x, w])
        assert part.data_ptr() == x[1:].data_ptr()
        assert same.data_ptr() == w.data_ptr()


@pytest.mark.parametrize("make", [
    lambda: torch.randn(4).expand(3, 4),
    lambda: torch.randn(3, 8)[:, ::2],
    lambda: torch.randn(4, 3).t(),
    lambda: torch.randn(20)[1:].as_strided((4, 4), (2, 1)),
    lambda: torch.randn(()),
    lambda: torch.randn(0, 4),
    lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
])
def test_inputs_and_outputs_keep_their_strides(make):
    region = inference(lambda x: (x + 1, x * 1))
    for x in [make() for _ in range(4)]:
        found, _ = region.forward([x])
        torch.testing.assert_close(found, x + 1)
        assert found.stride() == (x + 1).stride()


def test_an_expanded_output_keeps_its_strides():
    region = inference(lambda x: ((x + 1).expand(5, *x.shape),))
    for x in values():
        found, = region.forward([x])
        torch.testing.assert_close(found, (x + 1).expand(5, 3, 4))
        assert found.stride() == (0, 4, 1)


def test_constants_among_inputs_and_outputs():
    region = inference(lambda x, n: (x + n, None, n * 2))
    for x, n in zip(values(6), (1, 1, 2, 1, 2, 2)):
        found, nothing, number = region.forward([x, n])
        torch.testing.assert_close(found, x + n)
        assert nothing is None and number == 2 * n


def test_each_size_has_a_recording_of_its_own():
    memory = torch.randn(32)  # so that all sizes lie at one address
    region = inference(lambda n, x: (x.cumsum(0) * n,))
    for n in [4, 6, 4, 6, 8, 8, 4, 6, 8]:
        x = memory[:n]
        torch.testing.assert_close(region.forward([n, x]),
                                   (x.cumsum(0) * n,))
    assert region.stats["first call"] == 3
    assert region.stats["recorded"] == len(region.forward.recordings) == 3
    assert region.stats["replayed"] == 6


def test_recordings_for_sizes_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "KEPT", 3)
    monkeypatch.setattr(module, "SEEN", 7)
    region = inference(lambda n, x: (x * n,))
    for n in [*range(2, 9), *range(2, 9)]:
        x = torch.randn(n)
        torch.testing.assert_close(region.forward([n, x]), (x * n,))
    assert region.stats == {
        "first call": 7, "recorded": 3, "replayed": 3,
        "recorded too often for so few calls": 4}
    for n in range(9, 30):
        region.forward([n, torch.randn(n)])
    assert len(region.forward.last) == 7


def test_what_is_not_replayed_says_why(monkeypatch):
    """Every call is a replay or has a reason, which is the true one."""
    monkeypatch.setattr(module, "KEPT", 2)
    region = inference(lambda n, x: (x * n,))
    kept = torch.randn(8)
    for n, moves in [(4, 0), (4, 0), (6, 0), (4, 0), (6, 0), (8, 0), (8, 0),
                     (4, 1), (4, 1)]:
        x = torch.randn(n) if moves else kept[:n]
        torch.testing.assert_close(region.forward([n, x]), (x * n,))
    assert region.stats == {
        "first call": 3, "recorded": 2, "replayed": 3,
        "recorded too often for so few calls": 3}


def test_what_cannot_be_recorded_runs_and_the_reason_is_counted():
    def function(x):
        if calls.pop():
            raise RuntimeError("not while recording\nmore")
        return (x + 1,)
    calls = [False, False, True, False]
    region = inference(function)
    for x in values(3):
        torch.testing.assert_close(region.forward([x]), (x + 1,))
    assert region.stats == {
        "first call": 1, "cannot be recorded: not while recording": 2}


def test_an_exception_of_the_program_is_the_callers():
    def function(x):
        raise ValueError("the user's")
    region = inference(function)
    for x in values(3):
        with pytest.raises(ValueError, match="the user's"):
            region.forward([x])


def test_nothing_is_replayed_while_the_device_refuses():
    region = inference(lambda x: (x + 1,))
    given = values(4)
    for x in given[:3]:
        region.forward([x])
    region.device.reason = "the caller is recording"
    torch.testing.assert_close(region.forward([given[3]]), (given[3] + 1,))
    assert region.stats["the caller is recording"] == 1


def test_the_list_of_inputs_is_emptied_by_a_replay():
    region = inference(lambda x: (x + 1,))
    for x in values(3):
        given = [x]
        region.forward(given)
    assert given == []


def test_recordings_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "KEPT", 3)
    region = inference(lambda w, x: (w * x,), static={0})
    weights = values(8)
    for w in weights:
        torch.testing.assert_close(region.forward([w, w]), (w * w,))
    assert len(region.forward.recordings) == 3
    assert region.stats["recorded too often for so few calls"] == 4
    torch.testing.assert_close(
        region.forward([weights[2], weights[2]]), (weights[2] ** 2,))
    assert region.stats["replayed"] == 4


def test_the_recording_that_was_used_last_is_kept(monkeypatch):
    monkeypatch.setattr(module, "KEPT", 2)
    monkeypatch.setattr(module, "CALLS_EACH", 2)
    region = inference(lambda w, x: (w * x,), static={0})
    first, second, third = values(3)
    for w in (first, first, second, first, first, first, third, first):
        torch.testing.assert_close(region.forward([w, w]), (w * w,))
    bound = [recording.bound[0] for recording in region.forward.recordings]
    assert bound == [third.data_ptr(), first.data_ptr()]


def test_recordings_are_bounded_in_bytes():
    region = inference(lambda n, x: (x * n,))
    kept = {}
    for n in (10, 20, 30, 40):
        kept[n] = torch.randn(n)
        for _ in range(2):
            region.forward([n, kept[n]])
    kept_ones = region.forward.recordings
    assert [each.bytes for each in kept_ones] == [40, 80, 120, 160]
    region.device.limit = 300
    kept[1] = torch.randn(1)
    for _ in range(2):
        region.forward([1, kept[1]])
    assert [each.bytes for each in kept_ones] == [120, 160, 4]
    assert region.forward([20, kept[20]])[0].equal(kept[20] * 20)


def test_a_recording_that_lends_is_not_dropped():
    region = inference(lambda x: (x * 2, x + 1), visible=1)
    region.device.limit = 0
    given = values(4)
    held = [region.forward([x])[1] for x in given]
    assert len(region.forward.recordings) == 3
    for x, lent in zip(given, held):
        assert lent.equal(x + 1)


def test_a_value_that_is_seen_in_parts_and_lent_whole_is_given_back():
    def function(x):
        y = x * 2
        return y[1:], y[:2], y

    region = inference(function, visible=2)
    for x in values(5):
        end, start, lent = region.forward([x])
        assert end.equal(x[1:] * 2) and start.equal(x[:2] * 2)
        assert lent.equal(x * 2)
        del lent
    assert len(region.forward.recordings) == 1


def test_what_could_not_be_recorded_is_tried_again(monkeypatch):
    def failing(*given):
        region.device.record = record
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(module, "CALLS_EACH", 4)
    monkeypatch.setattr(module, "KEPT", 1)
    region = inference(lambda x: (x + 1,))
    record, region.device.record = region.device.record, failing
    x = torch.randn(3)
    for _ in range(6):
        assert region.forward([x])[0].equal(x + 1)
    assert region.stats == {
        "first call": 1, "cannot be recorded: no memory": 2,
        "recorded": 1, "replayed": 3}


def test_inference_mode_and_normal_mode_may_alternate():
    region = inference(lambda x: (x + 1,))
    for turn, x in enumerate(values(8)):
        with torch.inference_mode(turn % 3 == 1):
            found, = region.forward([x])
            torch.testing.assert_close(found, x + 1)


def test_a_dropped_region_leaves_nothing_behind():
    import weakref
    region = inference(lambda x: (x + 1,))
    for x in values(3):
        region.forward([x])
    ghost = weakref.ref(region.forward.recordings[0].clones[0])
    del region
    gc.collect()
    assert ghost() is None
