// What users of ioredis' cluster client do, against the nodes at the addresses given.
import assert from 'node:assert/strict'
import Redis from 'ioredis'

const nodes = process.argv.slice(2).map((a) => ({ host: a.split(':')[0], port: Number(a.split(':')[1]) }))
const r = new Redis.Cluster(nodes)
assert.equal(await r.set('k', 'v', 'EX', 100), 'OK')
assert.equal(await r.get('k'), 'v')
assert.deepEqual(await r.multi().set('{t}n', 1).incr('{t}n').exec(), [[null, 'OK'], [null, 2]])
assert.deepEqual(await r.pipeline().set('p', 1).incr('p').exec(), [[null, 'OK'], [null, 2]])
assert.equal(await r.call('BF.ADD', 'bloom', 'x'), 1)
assert.equal(await r.call('CF.ADD', 'cuckoo', 'x'), 1)
await assert.rejects(r.mset('a', 1, 'b', 2), /CROSSSLOT/)
r.disconnect()
for (const node of nodes) {
  const stale = new Redis({ ...node, readOnly: true })
  let got = null
  for (let i = 0; i < 1000 && got !== 'v'; i++) got = await stale.get('k')
  assert.equal(got, 'v')
  stale.disconnect()
}
console.log('passed: ioredis')
