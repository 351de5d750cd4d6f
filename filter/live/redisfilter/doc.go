// Package redisfilter keeps the Bloom filters of package live in Redis and Redis
// Cluster, for processes on several machines that share one.
//
//	Bloom       the package's own layout: spread over many keys, one command an
//	            operation, its configuration checked by each, rebuilt in place
//	Redisson    RBloomFilter's data, shared with Java programs
//	RedisBloom  the BF commands of a server that has them (RedisBloom, sift serve)
//
// All three are Filters, with one vocabulary: Add, AddMany, MayContain, MayContainMany,
// ApproxCount, Clear, Rename, Expire. They say "no" only for what was not added; where they
// cannot know, because the server does not answer or the data is gone, they say
// "maybe" and give an error. An operation that fails for a reason that passes,
// such as a failover or slots that move, is tried again for a while (RetryFor).
//
// They need Redis 6, or what is compatible with it: BITFIELD_RO for Scattered.
//
// Give them a client that reads from masters: a replica may not have yet what
// was added. A cluster client with ReadOnly or one of the routing options is
// refused.
//
// What Redis loses, the filters lose. Replication is asynchronous: with
// Options.Replicas an Add of a Bloom returns only when so many replicas have it.
// A master that restarts from an old snapshot has forgotten what came after it, which
// cannot be detected; use an append-only file or Replicas. A key that is evicted or
// deleted is detected: ErrLost.
package redisfilter
