"""Models of the transformers library, tiny: one graph, equal to eager."""

import logging
import warnings

import pytest
import torch

import minicompile
from tests.judge import judged
from tests.same import close

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

IDS = torch.randint(0, 90, (2, 7), generator=torch.manual_seed(0))
PIXELS = torch.linspace(-1, 1, 2 * 3 * 16 * 16).view(2, 3, 16, 16)
SOUND = torch.linspace(-1, 1, 2 * 8 * 20).view(2, 8, 20)

DECODER = {"vocab_size": 100, "hidden_size": 16, "intermediate_size": 32,
           "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**DECODER, "num_key_value_heads": 2}
VISION = {"hidden_size": 16, "intermediate_size": 32,
          "num_hidden_layers": 2, "num_attention_heads": 4,
          "image_size": 16, "patch_size": 4}
PAIR = {"vocab_size": 100, "d_model": 16, "encoder_layers": 2,
        "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32, "pad_token_id": 0}

TEXT = {"input_ids": IDS}
IMAGE = {"pixel_values": PIXELS}

#: name -> (model class, its config's arguments, the call's arguments)
MODELS = {
    "llama": ("LlamaForCausalLM", GROUPED, TEXT),
    "mistral": ("MistralForCausalLM", GROUPED, TEXT),
    "qwen2": ("Qwen2ForCausalLM", GROUPED, TEXT),
    "gpt2": ("GPT2LMHeadModel", {
        "vocab_size": 100, "n_embd": 16, "n_layer": 2, "n_head": 4,
        "n_positions": 32, "bos_token_id": 1, "eos_token_id": 1}, TEXT),
    "bert": ("BertModel", DECODER, TEXT),
    "vit": ("ViTModel", VISION, IMAGE),
    "roberta": ("RobertaModel", DECODER, TEXT),
    "distilbert": ("DistilBertModel", {
        "vocab_size": 100, "dim": 16, "hidden_dim": 32, "n_layers": 2,
        "n_heads": 4}, TEXT),
    "t5": ("T5ForConditionalGeneration", {
        "vocab_size": 100, "d_model": 16, "d_kv": 4, "d_ff": 32,
        "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
        {**TEXT, "labels": IDS}),
    "bart": ("BartModel", {**PAIR, "max_position_embeddings": 64}, TEXT),
    "bart that drops layers": ("BartModel", {
        **PAIR, "max_position_embeddings": 64, "encoder_layerdrop": 1e-9,
        "decoder_layerdrop": 1e-9}, TEXT),
    "whisper": ("WhisperModel", {
        **PAIR, "num_mel_bins": 8, "max_source_positions": 10,
        "max_target_positions": 20, "decoder_start_token_id": 1},
        {"input_features": SOUND, "decoder_input_ids": IDS}),
    "clip text": ("CLIPTextModel", DECODER, TEXT),
    "clip vision": ("CLIPVisionModel", VISION, IMAGE),
    "mixtral": ("MixtralForCausalLM",
                {**GROUPED, "num_local_experts": 4}, TEXT),
}

#: These are one graph and go through every stage. The others stop after
#: the trace, and where they break, have no more graphs than Dynamo's:
#: but in training, where older versions of transformers ask a random
#: number for each layer, each round of that loop is two graphs of ours.
FUSED = ("llama", "mistral", "qwen2", "gpt2", "bert", "vit")

CASES = [(name, backend, training) for name in MODELS
         for backend in ("eager", "fused") for training in (False, True)
         if (name in FUSED) == (backend == "fused") or not training
         and backend == "eager"]


def build(name: str):
    """(model, arguments of a call) of a tiny random one."""
    kind, config, inputs = MODELS[name]
    kind = getattr(transformers, kind)
    return kind(kind.config_class(**config)), inputs


@pytest.mark.slow(sample=6)
@pytest.mark.parametrize("name, backend, training", CASES)
def test_model(name, backend, training):
    model, inputs = build(name)
    model.train(training)
    options = {"fallback_random": True} if backend == "fused" else None
    compiled = minicompile.compile(
        model, backend=backend, fullgraph=name in FUSED, options=options)
    with warnings.catch_warnings(), torch.set_grad_enabled(training):
        warnings.simplefilter("ignore")
        want = output(model, inputs)
        for _ in range(2):
            torch.manual_seed(0)
            got = compiled(**inputs)
            assert type(got) is type(want)
            assert list(got) == list(want)
            judged(close, leaves(got), leaves(want),
                   lambda *of: leaves(output(*of)), model, inputs)
        if training:
            judged(close, gradients(model, got), gradients(model, want),
                   lambda model, inputs: gradients(
                       model, output(model, inputs)), model, inputs)
    stats = compiled.stats()
    assert not stats.fallbacks
    assert stats.graphs == 1 or stats.graph_breaks and (
        training or stats.graphs <= graphs_of_dynamo(model, inputs))


def output(model, inputs):
    """What the model returns, from the usual seed."""
    torch.manual_seed(0)
    return model(**inputs)


def graphs_of_dynamo(model, inputs) -> int:
    """How many graphs torch.compile makes of a call."""
    graphs = []
    torch._dynamo.reset()
    torch.compile(model, backend=lambda graph, _: graphs.append(graph)
                  or graph)(**inputs)
    return len(graphs)


class Heard(logging.Handler):
    """Keeps the texts that a logger is given."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def test_a_library_that_logs_once():
    model, inputs = build("gpt2")
    model.eval()
    inputs = {**inputs, "labels": IDS}
    logger, heard = logging.getLogger("transformers"), Heard()
    warning_once = logging.Logger.warning_once
    transformers.logging.set_verbosity_warning()
    logger.addHandler(heard)
    try:
        warning_once.cache_clear()
        want, expected = model(**inputs).loss, heard.texts[:]
        warning_once.cache_clear()
        heard.texts.clear()
        compiled = minicompile.compile(model, backend="eager",
                                       fullgraph=True)
        for _ in range(2):
            close(compiled(**inputs).loss, want)
    finally:
        logger.removeHandler(heard)
        transformers.logging.set_verbosity_error()
    assert heard.texts == expected and len(expected) == 1


def test_hooks_that_collect_hidden_states():
    """The first call that asks for these installs hooks, under a lock."""
    model, inputs = build("gpt2")
    inputs = {**inputs, "output_hidden_states": True}
    model.eval()
    want = build("gpt2")[0].eval()
    want.load_state_dict(model.state_dict())
    want = leaves(want(**inputs))
    compiled = minicompile.compile(model, backend="eager")
    for _ in range(2):
        close(leaves(compiled(**inputs)), want)
    assert compiled.stats().graph_breaks <= 1 >= compiled.stats().graphs


def leaves(value) -> list:
    """The tensors in an output, those of a cache included."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif hasattr(value, "__dict__"):
        value = list(vars(value).values())
    return [leaf for item in value for leaf in leaves(item)] if isinstance(
        value, (tuple, list)) else []


def gradients(model, output) -> list:
    """The gradients of the parameters, of all that was returned."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    loss = sum(leaf.square().mean() for leaf in leaves(output)
               if leaf.requires_grad)
    return list(torch.autograd.grad(loss, parameters, allow_unused=True))
