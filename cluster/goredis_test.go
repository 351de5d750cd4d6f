package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/siftdb/sift/internal/goredis"
)

var goRedis = flag.Bool("cluster.goredis", false, "run go-redis' own cluster tests; this downloads its module and those that its tests need")

// apart matches the groups of tests whose client treats three independent servers as a
// cluster, or has servers that it cannot reach.
const apart = `ClusterSlots|without nodes|without valid nodes|FailingTimeoutSeconds|ParseURL`

// TestGoRedisSuite: go-redis' own tests of its cluster client pass against siftd, except
// those in testdata/go-redis.txt. As in go-redis, there are six nodes and three groups
// of two.
func TestGoRedisSuite(t *testing.T) {
	if !*goRedis {
		t.Skip("without -cluster.goredis")
	}
	redis.SetLogger(silent{})
	edits := []goredis.Edit{
		{File: "main_test.go", From: "\tredisPort = redisStackPort\n",
			To: "\tredisPort = redisStackPort\n\tcluster.ports = strings.Split(os.Getenv(\"CLUSTER_PORTS\"), \",\")\n\tExpect(collectNodeInformation(ctx, cluster)).NotTo(HaveOccurred())\n", Count: 1},
		{File: "main_test.go", From: "\tif !RECluster {\n", To: "\tif false {\n", Count: 2}, // rings, sentinels, and the creation of the cluster
	}
	for i, count := range []int{3, 4, 3, 3, 4, 3} {
		edits = append(edits, goredis.Edit{File: "osscluster_test.go", From: fmt.Sprintf(`:%d"`, 16600+i), To: fmt.Sprintf(`:" + cluster.ports[%d]`, i), Count: count})
	}
	suite, err := goredis.Build(t.TempDir(), edits)
	if errors.Is(err, goredis.ErrModules) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	skip, err := goredis.Skipped(filepath.Join("testdata", "go-redis.txt"))
	if err != nil {
		t.Fatal(err)
	}
	r := siftdRival(t, 6, "--groups", "3", "--replicas", "2")
	r.startAll()
	defer r.killAll()
	ports := r.ports()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	passed, err := goredis.Run(ctx, suite, []string{"REDIS_VERSION=7.0", "CLUSTER_PORTS=" + strings.Join(ports, ",")}, "^go-redis ClusterClient", append(skip, apart))
	if err != nil {
		t.Error(err)
	}
	if len(passed) < 70 {
		t.Errorf("only %d tests passed", len(passed))
	}
	t.Logf("%d of go-redis' own tests of clusters passed", len(passed))
}

// ports waits until each node is in one of three groups, and returns the ports of the
// masters by their slots, and those of their replicas.
func (r *rival) ports() (ports []string) {
	client := r.client()
	eventually(r.t, func() error {
		slots, err := client.ClusterSlots(r.t.Context()).Result() //lint:ignore SA1019 Redis 7 has it, and it is shorter
		if err != nil {
			return err
		}
		ports = make([]string, 6)
		used := map[string]bool{}
		for _, s := range slots {
			if len(s.Nodes) != 2 || len(slots) != 3 {
				return fmt.Errorf("%v", slots)
			}
			for i, n := range s.Nodes {
				_, ports[i*3+s.Start*3/16380], _ = net.SplitHostPort(n.Addr)
				used[n.Addr] = true
			}
		}
		if len(used) != 6 {
			return fmt.Errorf("%v", slots)
		}
		return nil
	})
	return ports
}
