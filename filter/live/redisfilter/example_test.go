package redisfilter_test

import (
	"context"
	"fmt"
	"iter"

	"github.com/redis/go-redis/v9"
	"github.com/siftdb/sift/filter/live"
	"github.com/siftdb/sift/filter/live/redisfilter"
)

var ctx = context.Background()

// A filter shared by several machines, in a cluster with a replica for each master.
func ExampleOpen() {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"10.0.0.1:6379", "10.0.0.2:6379"}})
	users, err := redisfilter.Open(ctx, client, "users", redisfilter.Options[string]{Items: 10_000_000, FPR: 0.001, Replicas: 1})
	if err != nil {
		panic(err)
	}
	isNew, err := users.Add(ctx, "alice")
	fmt.Println(isNew, err)
	positive, err := users.MayContain(ctx, "bob") // true if there is an error
	fmt.Println(positive, err)
}

// The bits of a Java service's RBloomFilter<Long> with LongCodec.
func ExampleOpenRedisson() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	orders, err := redisfilter.OpenRedisson(ctx, client, "orders", redisfilter.RedissonOptions[int64]{})
	if err != nil {
		panic(err)
	}
	fmt.Println(orders.MayContain(ctx, 42))
}

// All clients continue while a filter is rebuilt from a table.
func ExampleBloom_Rebuild() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	users, err := redisfilter.Open(ctx, client, "users", redisfilter.Options[string]{})
	if err != nil {
		panic(err)
	}
	var rows iter.Seq2[string, error] // SELECT name FROM users
	err = users.Rebuild(ctx, redisfilter.RebuildOptions{Items: 20_000_000}, rows)
	fmt.Println(err)
}

// The filter of a live.Guard, shared by all processes.
func ExampleFilter() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	users, err := redisfilter.Open(ctx, client, "users", redisfilter.Options[string]{})
	if err != nil {
		panic(err)
	}
	guard, err := live.NewGuard(live.GuardOptions[string, string]{Keys: users})
	fmt.Println(guard.Stats(), err)
}
