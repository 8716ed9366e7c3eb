"""Which prompts of a call are prefixes of one another, so that one forward pass can serve several of them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["prefix_hosts"]

# Below this share of prompt tokens saved, every prompt keeps a forward pass of its own.
_MIN_SAVED_SHARE = 1 / 3


def prefix_hosts(prompts: Sequence[Sequence[int]]) -> list[int] | None:
    """Return for each prompt the index of a prompt that begins with all its tokens but the last.

    A prompt that no other one contains is its own host, and hosts are their own hosts. One forward pass over a host
    gives the keys and values of all prompts it hosts; each then needs one more step, with its last token. Hosting
    prompt a saves len(a) - 1 tokens; None where less than a third of all prompt tokens would be saved.

    Takes time in proportion to the number of tokens.

    >>> prefix_hosts([[1, 2, 3, 4], [1, 2, 9], [1, 2, 3, 7, 4], [5, 6, 7]])
    [2, 2, 2, 3]
    >>> prefix_hosts([[1, 2, 3], [4, 5, 6]]) is None
    True
    """
    hosts = list(range(len(prompts)))
    children: dict[tuple[int, int], int] = {}  # (node, token) -> node; node 0 is the empty prefix
    host_of_node = [-1]
    for index in sorted(hosts, key=lambda index: -len(prompts[index])):
        prompt = prompts[index]
        node = _walk(children, prompt[:-1])
        if node:
            hosts[index] = host_of_node[node]
        else:
            _insert(children, host_of_node, prompt, index)
    saved = sum(len(prompts[index]) - 1 for index, host in enumerate(hosts) if host != index)
    return hosts if saved and saved >= _MIN_SAVED_SHARE * sum(map(len, prompts)) else None


def _walk(children: dict[tuple[int, int], int], tokens: Sequence[int]) -> int:
    """Return the node at the end of `tokens`; 0 where there is none, or no tokens."""
    node = 0
    for token in tokens:
        node = children.get((node, token), 0)
        if not node:
            return 0
    return node


def _insert(children: dict[tuple[int, int], int], host_of_node: list[int], tokens: Sequence[int], host: int) -> None:
    """Add the path of `tokens`; nodes that were there keep the host they have."""
    node = 0
    for token in tokens:
        following = children.get((node, token))
        if following is None:
            following = len(host_of_node)
            host_of_node.append(host)
            children[node, token] = following
        node = following
