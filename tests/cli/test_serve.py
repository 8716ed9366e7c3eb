"""`swerve serve`: the command that is printed, and what --run does with a process that stands in for vLLM."""

from __future__ import annotations

import itertools
import json
import shlex
import socket
import sys

import pytest

from swerve.rollout.recipe_server import ServerPlan
from tests.command_line import exit_status

RECIPE = """
name: served
task: {kind: addition, digits: 2, num_train: 20, num_heldout: 8}
model: {kind: tiny, hidden_size: 64, num_heads: 2, num_kv_heads: 1}
max_new_tokens: 300
stages: [{kind: rl, steps: 1, prompts_per_step: 1, samples_per_prompt: 2, optimizer: {lr: 1e-4}}]
runtime: {device: cpu, max_rows: 48}
"""
SERVER = """
import http.server, os, signal, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): ...
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"{}")
        threading.Timer(0.5, os.kill, (os.getppid(), signal.SIGINT)).start()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def recipe(tmp_path) -> list[str]:
    (tmp_path / "served.yaml").write_text(RECIPE)
    return [
        "serve",
        str(tmp_path / "served.yaml"),
        f"rollout.engine={json.dumps({'kind': 'server', 'folder': str(tmp_path)})}",
    ]


def test_the_command_has_what_the_recipe_needs(recipe, tmp_path, capsys):
    assert exit_status(*recipe, "--port", "8123", "--", "--swap-space", "2") == 0
    shown = capsys.readouterr()
    words = shlex.split(shown.out)
    environment = dict(word.split("=") for word in words if word.startswith("VLLM_"))
    assert environment["VLLM_SERVER_DEV_MODE"] == "1"
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    options = dict(itertools.pairwise(words))
    assert options["--host"] == "127.0.0.1"
    assert options["--port"] == "8123"
    assert options["--logprobs-mode"] == "processed_logprobs"
    assert options["--max-num-seqs"] == "48"
    assert int(options["--max-model-len"]) > 300 + 8
    assert words[-2:] == ["--swap-space", "2"]
    assert {"--enable-scale-out", "--no-enable-chunked-prefill", "--worker-extension-cls"} <= {*words}
    (made,) = tmp_path.glob("swerve-weights/initial-*")
    assert options["--model"] == str(made)
    assert json.loads((made / "config.json").read_text())["head_dim"] == 32
    assert "rollout.engine.urls=http://127.0.0.1:8123" in shown.err
    assert "no authentication" in shown.err


def test_gpus_share_each_layer_and_need_nothing_of_a_cpu(recipe, capsys):
    changes = ["runtime.precision=bfloat16", "model.num_heads=4", "model.num_kv_heads=2"]
    assert exit_status(*recipe, "--gpus", "0,2", *changes, "rollout.engine.weights=transfer") == 0
    shown, keys = capsys.readouterr()
    assert """--weight-transfer-config '{"backend": "nccl"}'""" in shown
    assert "rollout.engine.urls=http://127.0.0.1:8000 rollout.engine.weights=transfer;" in keys
    assert "CUDA_VISIBLE_DEVICES=0,2 vllm serve " in shown
    assert "--tensor-parallel-size 2" in shown
    assert "--dtype bfloat16" in shown
    assert "cpu" not in shown.lower()
    assert "--worker-extension-cls" not in shown


@pytest.mark.parametrize(
    ("more", "status", "message"),
    [
        (["model.num_heads=4", "model.num_kv_heads=2"], 2, "no attention with heads of size 16 on a CPU, only 32, 64"),
        (["rollout.engine.weights=transfer"], 2, "from GPU to GPU (NCCL), and the model is on the cpu"),
        (["--gpus", "all"], 2, "--gpus 'all' is not a list of numbers such as 0,1"),
        (["--run"], 1, "pip install 'swerve[vllm]'"),
    ],
)
def test_what_cannot_be_served_is_one_line(recipe, capsys, monkeypatch, more, status, message):
    monkeypatch.setattr("swerve.rollout.vllm_protocol.find_spec", lambda _: None)
    assert exit_status(*recipe, *more) == status
    assert message in capsys.readouterr().err


def test_what_only_another_machine_can_serve_is_printed_with_a_note(recipe, capsys):
    assert exit_status(*recipe, "runtime.device=auto", "model.num_heads=4", "model.num_kv_heads=2") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("VLLM_")
    assert " vllm serve " in shown.out
    assert (
        "swerve: a command for a machine with a GPU: vLLM has no attention with heads of size 16 on a CPU" in shown.err
    )


@pytest.fixture
def started(monkeypatch):
    """Start a script in place of vLLM."""

    def start(script: str, port: int) -> None:
        monkeypatch.setattr("swerve.rollout.vllm_protocol.check_installed", lambda _: None)
        monkeypatch.setattr(ServerPlan, "command", lambda *_: [sys.executable, "-c", script, str(port)])

    return start


def test_a_server_is_waited_for_until_it_samples_and_stopped_by_ctrl_c(recipe, capfd, started):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started(SERVER, port)
    assert exit_status(*recipe, "--run", "--port", str(port)) == 0
    shown = capfd.readouterr().err
    assert f"http://127.0.0.1:{port} samples; Ctrl-C stops it" in shown
    assert shown.endswith("swerve: stopping the server\n")
    with socket.socket() as gone, pytest.raises(ConnectionRefusedError):
        gone.connect(("127.0.0.1", port))


def test_a_server_that_ends_by_itself_is_an_error_and_a_taken_port_too(recipe, capfd, started):
    started("import sys; sys.exit('no such model')", 1)
    assert exit_status(*recipe, "--run", "--port", "1") == 1
    assert "no such model\nswerve: error: the server ended with status 1; its output is above" in capfd.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert exit_status(*recipe, "--run", "--port", str(port)) == 2
    assert f"something listens on port {port} already" in capfd.readouterr().err


def test_a_key_on_the_command_line_is_refused_and_not_repeated(recipe, capsys):
    for option in (["--api-key", "sk-zq9"], ["--api_key=sk-zq9"]):
        assert exit_status(*recipe, "--", *option) == 2
        shown = capsys.readouterr()
        assert (shown.out, "zq9" in shown.err, "VLLM_API_KEY" in shown.err) == ("", False, True)
