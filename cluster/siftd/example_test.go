package siftd_test

import (
	"bufio"
	"fmt"
	"net"
	"os"

	"github.com/siftdb/sift/cluster/siftd"
)

// A cluster of one node. More nodes join it with Config.Join.
func Example() {
	dir, err := os.MkdirTemp("", "siftd")
	check(err)
	defer os.RemoveAll(dir)
	n, err := siftd.Start(siftd.Config{
		Dir: dir, Addr: "127.0.0.1:0", RaftAddr: "127.0.0.1:0",
		Init: true, Shape: siftd.Shape{Groups: 1, Replicas: 3},
	})
	check(err)
	defer n.Close()

	conn, err := net.Dial("tcp", n.Addr()) // usually a Redis client for clusters
	check(err)
	defer conn.Close()
	fmt.Fprint(conn, "PING\r\n")
	reply, err := bufio.NewReader(conn).ReadString('\n')
	check(err)
	fmt.Print(reply)
	// Output: +PONG
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
