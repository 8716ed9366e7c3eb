"""What a user writes, for mypy: every result has its type, and keywords are known."""

from pathlib import Path

import swerve

PROBLEMS = [{"question": "2 + 2?", "answer": "4"}, {"question": "3 + 4?", "answer": "7"}]


def main(base: str, tuned: Path) -> None:
    samples = swerve.sample({"base": base, "tuned": tuned}, PROBLEMS, num_samples=2, max_new_tokens=16, temperature=0.7)
    right = [response.correct for response in samples]
    frame = samples["tuned"].to_pandas()
    print(right, frame.head(), samples.labels)

    comparison = swerve.evaluate(base, "problems.jsonl", num_samples=2, temperature=[0.0, 1.0])
    accuracies = {row.model: row.accuracy.mean for row in comparison.rows if row.accuracy is not None}
    print(accuracies, swerve.compare(samples["base"], samples["tuned"]).to_polars())

    result = swerve.probe(base, tuned, samples, causal=True, out="probed")
    highest: float = result.mean_js + float(result.js.max())
    page: Path = swerve.report(result)
    several = swerve.probe(base, {"tuned": tuned}, [("2 + 2?", "4")])
    print(highest, page, several["tuned"].mean_js, result.to_pandas().nlargest(5, "js"))

    card = swerve.claim(base, tuned, problems=PROBLEMS, num_samples=4, parts=["accuracy"], out="card")
    print([verdict.sentence for verdict in card.verdicts if verdict.shown], card.to_pandas("by_problem"))

    grades = swerve.grade([{"response": "It is 4.", "gold": "4"}], task="math", extraction=["auto"])
    share = None if grades.right is None else grades.right.mean
    run = swerve.Run("demo-addition")
    print(share, run.model("rl").label, list(swerve.tasks()), swerve.recipes("gsm8k")["gsm8k"])
    settings = swerve.SampleSettings(task="math", num_samples=4)
    print(settings.num_samples, swerve.rewards.math("It is 4.", "4"), swerve.rewards.math(["4"], ["4"]))
