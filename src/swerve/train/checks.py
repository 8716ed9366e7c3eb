"""What training refuses in a recipe before its first step; `swerve config check` asks the same."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import accumulate

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from swerve.config.engines import OpenAIEngineConfig, ServerEngineConfig, TorchEngineConfig
from swerve.config.recipe import Config
from swerve.config.stages import StageConfig
from swerve.config.supervised_stages import RejectStage, SftStage
from swerve.errors import ConfigError, nearest
from swerve.models.hub import is_left_open
from swerve.models.model_folder import resolve_device, stop_ids, tokenizer_fingerprint
from swerve.models.starting_model import OTHER_TOKENS, read_architecture, recipe_architecture
from swerve.positions import limit_said, max_positions, max_sampled
from swerve.problems import ProblemFamily, load_family
from swerve.problems.data_specs import check_source, parse_spec
from swerve.problems.held_out import HeldOut
from swerve.problems.learned import read_learned
from swerve.prompts.encode import encode_completions, encode_prompts
from swerve.prompts.templates import TemplateArguments, check_template_arguments, template_arguments
from swerve.rewards.checks import check_graders
from swerve.rollout.decoding_trial import check_architecture, check_decoding
from swerve.rollout.vllm_protocol import check_transfer
from swerve.seeds import derive_seed
from swerve.train.curriculum import stage_draws
from swerve.train.examples import ExampleReader
from swerve.train.learner import optimizer_class
from swerve.train.phases import phases_of
from swerve.train.replicated_model import check_liger
from swerve.train.sharded_model import check_offload
from swerve.train.trackers import check_trackers
from swerve.train.watches import check_watched
from swerve.types import Problem, Prompt

_NUM_MEASURED = 256


def check_recipe(config: Config, *, is_here: bool = True) -> None:
    """Check all that can be told of a recipe without reading weights or asking for data on the hub.

    Args:
        config: the recipe.
        is_here: whether this machine trains it; False: packages, devices and folders of other models are not looked
            at.

    Raises:
        ConfigError: training would refuse it; see the checks below.
        ArtifactError: a file of problems or of examples cannot be read.
        CheckpointError: a model is no causal model of text, or its weights are quantised.
        MissingExtraError: it needs a package that is not installed.
    """
    # The machine, and the models that the recipe names.
    if is_here:
        check_machine(config)
    architecture, tokenizer = (None, None) if is_left_open(config.model) else recipe_architecture(config)
    if architecture is not None:
        check_recipe_models(config, architecture, tokenizer, is_here=is_here)
    # The data; the problems are those that training would draw, unless they would have to be asked for.
    for spec in config.task.sources:
        check_source(spec)
    family = None if any(parse_spec(spec).is_on_hub for spec in config.task.sources) else load_family(config.task)
    check_examples(config, family, architecture, tokenizer)
    if family is not None:
        problems = family.problems("train", seed=derive_seed(config.seed, "problems"))
        check_problems(config, family, problems)
        if architecture is not None and tokenizer is not None:
            check_solution_lengths(config, architecture, tokenizer, problems, checks_solutions=not family.is_prose)
        for stage in config.stages:
            stage_draws(phases_of(stage), family, problems, seed=config.seed)


def check_solution_lengths(
    config: Config,
    architecture: PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    *,
    checks_solutions: bool = True,
) -> None:
    """Check that the longest problems and their solutions fit the length limit and the model's positions.

    Args:
        config: the run's.
        architecture: of the model that reads them.
        tokenizer: the model's.
        problems: those with the most characters are looked at.
        checks_solutions: whether a completion must be about as long as the written solution to be right.

    Raises:
        ConfigError: one does not, so that no completion could ever be right, or the model has too few positions.
    """
    # The longest problems, as the model reads them, and their written solutions.
    arguments = template_arguments(config.model)
    check_template_arguments(tokenizer, arguments)
    longest = heapq.nlargest(_NUM_MEASURED, problems, key=lambda problem: len(problem.question))
    prompts = encode_prompts(tokenizer, longest, arguments)
    lengths = _solution_lengths(tokenizer, prompts, arguments) if checks_solutions else [None] * len(longest)

    # A prompt must leave room for a completion, and a completion for the solution.
    for prompt, needed in zip(prompts, lengths, strict=True):
        problem = prompt.problem
        limit = max_sampled(architecture, len(prompt.token_ids))
        if limit is not None and len(prompt.token_ids) + config.max_new_tokens > limit:
            raise ConfigError(
                f"problem {problem.id!r} has {len(prompt.token_ids)} tokens and max_new_tokens is "
                f"{config.max_new_tokens}, together more than {limit_said(architecture, len(prompt.token_ids))}; "
                "lower max_new_tokens, leave long questions out, or take a model with more positions "
                "(model.max_positions of the tiny one)"
            )
        if needed is not None and needed > config.max_new_tokens:
            raise ConfigError(
                f"the right solution of problem {problem.id!r} has {needed} tokens, more than "
                f"max_new_tokens={config.max_new_tokens}; raise max_new_tokens"
            )


def _solution_lengths(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt], arguments: TemplateArguments
) -> list[int | None]:
    """Return the number of tokens of each written solution, None for a problem without one."""
    solved = {number: prompt for number, prompt in enumerate(prompts) if prompt.problem.solution is not None}
    texts = [prompt.problem.solution or "" for prompt in solved.values()]
    completions = encode_completions(tokenizer, list(solved.values()), texts, arguments)
    lengths = dict(zip(solved, map(len, completions), strict=True))
    return [lengths.get(number) for number in range(len(prompts))]


def check_machine(config: Config) -> None:
    """Check that what the recipe asks of the machine is there.

    Raises:
        ConfigError: a key needs a CUDA device.
        MissingExtraError: a key needs a package that is not installed.
    """
    device = resolve_device(config.runtime.device)
    check_trackers(config.runtime.trackers)
    check_offload(config.runtime.sharding, device)
    if config.runtime.liger:
        check_liger()
    for stage in config.stages:
        optimizer_class(stage.optimizer)
    if isinstance(config.rollout.engine, OpenAIEngineConfig) and not all(
        isinstance(stage, SftStage) for stage in config.stages
    ):
        raise ConfigError(
            "rollout.engine.kind=openai cannot give a server the weights of each update; train with "
            "rollout.engine.kind=server (vLLM) or torch"
        )
    if isinstance(config.rollout.engine, ServerEngineConfig) and config.rollout.engine.weights == "transfer":
        check_transfer(device.partition(":")[0])


def check_problems(config: Config, family: ProblemFamily, problems: Sequence[Problem]) -> None:
    """Check that the training problems can be graded, and that there are held-out ones where training measures on them.

    Raises:
        ConfigError: see `check_graders` and `check_watched`.
    """
    check_graders(problems)
    check_watched(config, family)


def check_examples(
    config: Config,
    family: ProblemFamily | None,
    model: PreTrainedModel | PreTrainedConfig | None,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    done: int | None = None,
) -> None:
    """Read the examples that supervised stages learn from or validate on as these will when they begin.

    Args:
        config: the recipe.
        family: of its task; None: nothing is held out.
        model: the recipe's, or its configuration; None where it is not at hand: files are read as records only.
        tokenizer: the model's; None where it is not at hand, as for the model.
        done: global steps made, where training is to go on: stages that are over are not looked at, nor is an SFT
            stage whose turn it is, which reads its own before its first step. None: the hub is not asked.

    Raises:
        ConfigError: a source is not there, or `ExampleReader.read` refuses it.
        ArtifactError: a file cannot be read, or a record is neither a response nor plain text.
    """

    def silent(_line: str) -> None:
        pass

    # That the sources are there; an SFT stage whose turn it is reads its own itself.
    stages = _stages_left(config, done or 0)
    for stage in stages:
        for spec in stage.examples:
            check_source(spec)
    if done is not None and stages and isinstance(stages[0], SftStage):
        del stages[0]
    # Then what is in them, as token ids where the model is at hand.
    for stage in stages:
        specs = [spec for spec in stage.examples if done is not None or not parse_spec(spec).is_on_hub]
        if model is None or tokenizer is None:
            for spec in specs:
                read_learned(spec, HeldOut(), silent)
        elif specs and isinstance(stage, SftStage | RejectStage):
            positions = max_positions(model.config if isinstance(model, PreTrainedModel) else model)
            ends = stop_ids(model, tokenizer)
            ExampleReader.of_stage(
                stage, config, family, tokenizer, stop_ids=ends, positions=positions, note=silent
            ).read(specs)


def _stages_left(config: Config, done: int) -> list[StageConfig]:
    """Return the stages that are not over after as many global steps."""
    ends = accumulate(stage.steps for stage in config.stages)
    return [stage for end, stage in zip(ends, config.stages, strict=True) if end > done]


def check_recipe_models(
    config: Config,
    model: PreTrainedModel | PreTrainedConfig,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    done: int = 0,
    is_here: bool = True,
) -> None:
    """Check that the recipe's model can be sampled from, and that other models it names are there and read its tokens.

    No weights are read. What watches training (`every`) samples with the run's engine, too.

    Args:
        config: the recipe.
        model: the recipe's, or its configuration, of which less can be told.
        tokenizer: the model's; None where it is not at hand: then tokens are not compared.
        done: global steps made; stages that are over are not looked at.
        is_here: False: other models than the recipe's own are taken to be there.

    Raises:
        ConfigError: the engine cannot sample from the model (see `check_decoding`); another one is not there, or its
            tokenizer is another; or a stage keeps no such checkpoint.
        CheckpointError: another one is no causal model of text, or its weights are quantised.
    """
    # The embedded engine samples with the model itself.
    samples = not all(isinstance(stage, SftStage) for stage in config.stages)
    is_embedded = isinstance(config.rollout.engine, TorchEngineConfig)
    if (samples and is_embedded) or config.eval.every is not None or config.probe.every is not None:
        if isinstance(model, PreTrainedModel):
            check_decoding(model)
        else:
            check_architecture(model)
    # References and teachers: checkpoints of the run, or models with the policy's tokens.
    labels = [stage.label for stage in config.stages]
    for stage in _stages_left(config, done):
        for key, name in stage.frozen_models.items():
            key = f"stages.{stage.label}.{key}"
            if config.is_own(name):
                _check_kept(name, config, key=key)
                continue
            if not is_here:
                continue
            other = _tokenizer_of(name, key, labels)
            if tokenizer is None or other is None or stage.kind == "reject":  # it learns texts, not token by token
                continue
            if tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(other):
                raise ConfigError(f"{key}={name}: {OTHER_TOKENS}")


def _tokenizer_of(name: str, key: str, labels: Sequence[str]) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer of another model, where it is at hand."""
    try:
        return read_architecture(name, key=key)[1]
    except ConfigError:
        if hint := nearest(name, labels):
            raise ConfigError(f"{key}={name}: there is no stage, folder or model of this name{hint}") from None
        raise


def _check_kept(name: str, config: Config, *, key: str) -> None:
    label, _, number = name.rpartition("-")
    stages = {stage.label: stage for stage in config.stages}
    if name in stages or not number.isdecimal() or getattr(stages[label], "epochs", None) is not None:
        return  # the last one, or not known yet
    kept = sorted(stages[label].kept_steps)
    if int(number) not in kept:
        raise ConfigError(
            f"{key}={name}: stage '{label}' keeps no checkpoint after step {number}, only after "
            f"{', '.join(map(str, kept))}; add it to stages.{label}.checkpoints"
        )
