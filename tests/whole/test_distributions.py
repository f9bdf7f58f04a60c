"""PyTorch's distributions, made outside and inside, beside eager."""

import pytest
import torch
from torch import distributions as D

import minicompile
from tests.same import close


def drawn(*shape):
    return torch.rand(shape) + 0.5


#: A name -> a distribution with parameters of some size.
MADE = {
    **{kind.__name__: lambda kind=kind: kind(torch.randn(3), drawn(3))
       for kind in (D.Normal, D.LogNormal, D.Laplace, D.Cauchy, D.Gumbel,
                    D.VonMises, D.LogisticNormal)},
    **{kind.__name__: lambda kind=kind: kind(drawn(3), drawn(3) + 2)
       for kind in (D.Beta, D.Gamma, D.Weibull, D.Pareto, D.Kumaraswamy,
                    D.InverseGamma, D.Uniform)},
    **{kind.__name__: lambda kind=kind: kind(drawn(2, 3))
       for kind in (D.Exponential, D.HalfNormal, D.HalfCauchy, D.Poisson,
                    D.Chi2, D.Dirichlet)},
    **{kind.__name__: lambda kind=kind: kind(torch.rand(2, 4) * 0.8 + 0.1)
       for kind in (D.Bernoulli, D.Categorical, D.Geometric,
                    D.OneHotCategorical, D.ContinuousBernoulli,
                    D.OneHotCategoricalStraightThrough)},
    **{kind.__name__: lambda kind=kind: kind(
        torch.tensor(0.7), logits=torch.randn(2, 3))
       for kind in (D.RelaxedBernoulli, D.RelaxedOneHotCategorical)},
    "Binomial": lambda: D.Binomial(10, torch.rand(3)),
    "Multinomial": lambda: D.Multinomial(5, torch.rand(2, 3)),
    "NegativeBinomial": lambda: D.NegativeBinomial(
        drawn(3) * 5, torch.rand(3)),
    "StudentT": lambda: D.StudentT(drawn(3) + 2, torch.randn(3), drawn(3)),
    "FisherSnedecor": lambda: D.FisherSnedecor(drawn(3) + 2, drawn(3) + 4),
    "MultivariateNormal": lambda: D.MultivariateNormal(
        torch.randn(3), torch.eye(3) * 2),
    "LowRankMultivariateNormal": lambda: D.LowRankMultivariateNormal(
        torch.randn(3), torch.randn(3, 2), drawn(3)),
    "Independent": lambda: D.Independent(
        D.Normal(torch.randn(2, 3), drawn(2, 3)), 1),
    "MixtureSameFamily": lambda: D.MixtureSameFamily(
        D.Categorical(torch.rand(3)), D.Normal(torch.randn(3), drawn(3))),
    "TransformedDistribution": lambda: D.TransformedDistribution(
        D.Normal(torch.randn(3), drawn(3)),
        [D.AffineTransform(1.0, 2.0), D.SigmoidTransform()]),
    "LKJCholesky": lambda: D.LKJCholesky(3, 1.5),
    "Wishart": lambda: D.Wishart(torch.tensor([5.0]), torch.eye(3)[None])}

QUESTIONS = {
    "sample": lambda made, value: made.sample((2,)),
    "rsample": lambda made, value: made.rsample((2,)),
    "log_prob": lambda made, value: made.log_prob(value),
    "entropy": lambda made, value: made.entropy(),
    "moments": lambda made, value: (made.mean, made.variance, made.mode),
    "cdf": lambda made, value: made.cdf(value),
    "icdf": lambda made, value: made.icdf(torch.tensor(0.3)),
    "expand": lambda made, value: made.expand(
        (2, *made.batch_shape)).log_prob(value),
    "kl": lambda made, value: D.kl_divergence(made, made)}


def told(function, *args):
    """The result from one seed, or the exception's class."""
    torch.manual_seed(3)
    try:
        return function(*args)
    except Exception as error:
        return type(error)


@pytest.mark.slow(sample=4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", MADE)
def test_a_distribution_is_eagers(name, question):
    torch.manual_seed(1)
    made, ask = MADE[name](), QUESTIONS[question]
    value = made.sample()

    def inside(value):
        return ask(MADE[name](), value)

    for function, args in ((ask, (made, value)), (inside, (value,))):
        compiled = minicompile.compile(
            function, options={"fallback_random": True})
        want, got = told(function, *args), told(compiled, *args)
        if isinstance(want, type):
            assert got is want
        else:
            close(got, want)
