// Command siftdriver has sift open a directory and executes the requests on standard input.
// Built in the tree of an older commit, it is that version of sift.
package main

import (
	"fmt"
	"os"

	"github.com/siftdb/sift/internal/interop/relay"
)

func main() {
	store, err := relay.OpenSift(os.Args[1])
	if err == nil {
		err = relay.Serve(os.Stdin, os.Stdout, store)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
