// Typical uses of JavaScript libraries, against the server at the given port.
import assert from 'node:assert/strict'
import Redis from 'ioredis'
import { createClient } from 'redis'
import Keyv from 'keyv'
import KeyvRedis from '@keyv/redis'
import session from 'express-session'
import { RedisStore } from 'connect-redis'

const port = Number(process.argv[2])
const url = `redis://127.0.0.1:${port}`
const passed = []
// The second argument is the row of the table in docs/serve.md.
async function library(name, works, run) {
  await run()
  passed.push(name)
  console.log(`row: | ${name} | ${works} |`)
}

await library('ioredis', 'strings, databases, pipelines, `WATCH` and `MULTI`, `SCAN`, `BF.ADD`', async () => {
  const r = new Redis({ port, db: 1 })
  assert.equal(await r.set('k', 'v', 'EX', 100), 'OK')
  assert.equal(await r.get('k'), 'v')
  assert.equal(await r.incrbyfloat('f', 0.1), '0.1')
  assert.equal(await r.incrbyfloat('f', 0.2), '0.3')
  assert.deepEqual(await r.mget('k', 'none'), ['v', null])
  assert.deepEqual(await r.pipeline().set('a', 1).incr('a').exec(), [[null, 'OK'], [null, 2]])
  await r.watch('a')
  assert.deepEqual(await r.multi().incr('a').get('a').exec(), [[null, 3], [null, '3']])
  await r.watch('a')
  const other = new Redis({ port, db: 1 })
  await other.set('a', 9)
  assert.equal(await r.multi().incr('a').exec(), null)
  const keys = []
  for await (const part of r.scanStream({ match: '*' })) keys.push(...part)
  assert.deepEqual(keys.sort(), ['a', 'f', 'k'])
  assert.equal(await r.call('BF.ADD', 'bloom', 'x'), 1)
  await assert.rejects(r.lpush('l', 'x'), /unknown command/)
  await other.select(0)
  assert.equal(await other.get('k'), null)
  await r.flushdb()
  r.disconnect()
  other.disconnect()
})

await library('node-redis', 'strings, databases, `MULTI`, Bloom and cuckoo filters', async () => {
  const r = await createClient({ url, database: 2 }).connect()
  await r.set('k', 'v', { EX: 100 })
  assert.equal(await r.getEx('k', { type: 'EX', value: 50 }), 'v')
  assert.deepEqual(await r.multi().set('n', '1').incr('n').exec(), ['OK', 2])
  assert.equal(await r.bf.add('bloom', 'x'), true)
  assert.deepEqual(await r.bf.mExists('bloom', ['x', 'y']), [true, false])
  assert.equal(await r.cf.add('cuckoo', 'x'), true)
  assert.equal(await r.exists('k'), 1)
  assert.equal(await r.dbSize(), 4)
  await r.flushDb()
  r.destroy()
})

await library('keyv', 'through @keyv/redis: set with a TTL, get, has, delete, clear', async () => {
  const k = new Keyv(new KeyvRedis(url, { namespace: 'cache' }))
  k.on('error', (err) => { throw err })
  await k.set('user', { name: 'x' }, 10_000)
  assert.deepEqual(await k.get('user'), { name: 'x' })
  assert.equal(await k.has('user'), true)
  assert.equal(await k.delete('user'), true)
  assert.equal(await k.get('user'), undefined)
  await k.set('a', 1)
  await k.clear()
  assert.equal(await k.get('a'), undefined)
  await k.disconnect()
})

await library('connect-redis', 'sessions: set, get, touch, ids, length, destroy', async () => {
  const client = await createClient({ url }).connect()
  const store = new RedisStore({ client, prefix: 's:' })
  const cookie = new session.Cookie({ maxAge: 60_000 })
  await store.set('id', { cookie, user: 'x' })
  assert.equal((await store.get('id')).user, 'x')
  await store.touch('id', { cookie })
  assert.deepEqual(await store.ids(), ['id'])
  assert.equal(await store.length(), 1)
  await store.destroy('id')
  assert.ok(!(await store.get('id')))
  client.destroy()
})

console.log('passed: ' + passed.join(', '))
