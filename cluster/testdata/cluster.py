"""Typical uses of redis-py's cluster client.

Arguments: the addresses of nodes, --, and keys of many slots.
"""
import sys

from redis.cluster import ClusterNode, RedisCluster

end = sys.argv.index("--")
nodes = [ClusterNode(*a.split(":")) for a in sys.argv[1:end]]
keys = sys.argv[end + 1 :]
r = RedisCluster(startup_nodes=nodes, decode_responses=True)
assert r.set("k", "v", ex=100) and r.get("k") == "v" and 90 < r.ttl("k") <= 100
assert r.mset_nonatomic({"a": 1, "b": 2}) and r.incr("a") == 2
with r.pipeline() as p:
    assert p.set("{t}1", 1).incr("{t}1").execute() == [True, 2]
assert r.execute_command("BF.ADD", "py:bloom", "x") == 1
added = r.execute_command("CF.ADD", "py:cuckoo", "x")
assert added == 1, added
assert len(keys) == 100
for k in keys:
    assert r.set(k, "py:" + k)
for k in keys:
    assert r.get(k) == "py:" + k
with r.pipeline() as p:  # over all groups
    for k in keys:
        p.get(k)
    assert p.execute() == ["py:" + k for k in keys]
stale = RedisCluster(startup_nodes=nodes, read_from_replicas=True, decode_responses=True)
for _ in range(100):
    if stale.get("k") == "v":
        break
else:
    raise AssertionError("replicas never have it")
print("passed: redis-py")
