"""Typical uses of redis-py, against the server at the given port."""
import sys

import redis

r = redis.Redis(port=int(sys.argv[1]), db=3, decode_responses=True)
r.flushdb()
assert r.set("k", "v", ex=100) and r.get("k") == "v" and 90 < r.ttl("k") <= 100
assert r.getex("k", persist=True) == "v" and r.ttl("k") == -1
assert r.setrange("k", 3, "x") == 4 and r.getrange("k", 0, 0) == "v"
assert r.msetnx({"a": 1, "b": 2}) and not r.msetnx({"b": 3, "c": 4})
assert r.setbit("bits", 7, 1) == 0 and r.bitcount("bits") == 1 and r.bitpos("bits", 1) == 7
assert r.incrbyfloat("f", 0.1) == 0.1 and r.incrbyfloat("f", 0.2) == 0.3
assert sorted(r.keys("*")) == ["a", "b", "bits", "f", "k"] == sorted(r.scan_iter("*"))
assert r.randomkey() in r.keys() and r.dbsize() == 5 and r.touch("a", "none") == 1


def increment(pipe):
    n = int(pipe.get("a"))
    pipe.multi()
    pipe.set("a", n + 1)


assert r.transaction(increment, "a") == [True] and r.get("a") == "2"
assert r.restore("copy", 0, redis.Redis(port=int(sys.argv[1]), db=3).dump("k")) and r.get("copy") == r.get("k")
info = r.info()
assert info["db3"]["keys"] == 6 and info["arch_bits"] in (32, 64) and info["used_cpu_user"] >= 0
assert r.client_list()[0]["db"] and r.config_get("databases") == {"databases": "16"}
assert r.slowlog_len() >= 0 and r.lastsave() and r.save() and r.memory_usage("k") > 0
assert r.bf().add("bloom", "x") == 1 and r.bf().exists("bloom", "y") == 0 and r.cf().add("cuckoo", "x") == 1
try:
    r.lpush("l", "x")
    raise AssertionError("LPUSH was executed")
except redis.ResponseError as err:
    assert "unknown command" in str(err)
r.flushdb()
print("row: | redis-py | strings, bits, transactions, `DUMP` and `RESTORE`, filters |")
print("passed: redis-py", redis.__version__)
