// Typical uses of ioredis' cluster client. Arguments: the addresses of nodes, --, and keys of many
// slots.
import assert from 'node:assert/strict'
import Redis from 'ioredis'

const args = process.argv.slice(2)
const keys = args.splice(args.indexOf('--')).slice(1)
const nodes = args.map((a) => ({ host: a.split(':')[0], port: Number(a.split(':')[1]) }))
const r = new Redis.Cluster(nodes)
assert.equal(await r.set('k', 'v', 'EX', 100), 'OK')
assert.equal(await r.get('k'), 'v')
assert.deepEqual(await r.multi().set('{t}n', 1).incr('{t}n').exec(), [[null, 'OK'], [null, 2]])
assert.deepEqual(await r.pipeline().set('p', 1).incr('p').exec(), [[null, 'OK'], [null, 2]])
assert.equal(await r.call('BF.ADD', 'bloom', 'x'), 1)
assert.equal(await r.call('CF.ADD', 'cuckoo', 'x'), 1)
await assert.rejects(r.mset('a', 1, 'b', 2), /CROSSSLOT/)
assert.equal(keys.length, 100)
assert.deepEqual(await Promise.all(keys.map((k) => r.set(k, `node:${k}`))), keys.map(() => 'OK'))
for (const k of keys) assert.equal(await r.get(k), `node:${k}`)
r.disconnect()
for (const node of nodes) {
  const stale = new Redis({ ...node, readOnly: true })
  let got = null
  for (let i = 0; i < 1000 && got !== 'v'; i++) got = await stale.get('k')
  assert.equal(got, 'v')
  stale.disconnect()
}
console.log('passed: ioredis')
