package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// runRestart fills a server, kills it, and starts it again.
func runRestart(dir string) error {
	const itemsEach = 100_000
	sift := siftServer("sift", "0,1", dir)
	if err := sift.start(); err != nil {
		return err
	}
	defer sift.stop()
	began := time.Now()
	if err := load(sift.port, *keys); err != nil {
		return err
	}
	fmt.Printf("%d keys set in %v\n", *keys, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	for f := range *filters {
		name := "filter:" + strconv.Itoa(f)
		if err := call(sift.port, "BF.RESERVE", name, "0.01", strconv.Itoa(itemsEach)); err != nil {
			return err
		}
		var b []byte
		const step = 100
		for from := 0; from < itemsEach; from += step {
			args := []string{"BF.INSERT", name, "ITEMS"}
			for i := range step {
				args = append(args, strconv.Itoa(from+i))
			}
			b = appendCall(b, args...)
		}
		// A reply is an array of step lines.
		if err := pipeline(sift.port, b, itemsEach/step*(step+1)); err != nil {
			return err
		}
	}
	fmt.Printf("%d filters of %d items in %v\n", *filters, itemsEach, time.Since(began).Round(time.Millisecond))
	for _, end := range []string{"kill -9", "a clean shutdown", "kill -9"} {
		if end == "kill -9" {
			sift.cmd.Process.Kill()
			sift.cmd.Wait()
			sift.cmd = nil
		} else {
			sift.stop()
		}
		size, err := treeBytes(dir)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := sift.start(); err != nil {
			return err
		}
		ready := time.Since(began)
		if err := call(sift.port, "GET", fmt.Sprintf("key:%012d", *keys-1)); err != nil {
			return err
		}
		fmt.Printf("after %s: answers %v after its start, %d MiB on disk\n", end, ready.Round(time.Millisecond), size>>20)
	}
	return nil
}

func treeBytes(dir string) (n int64, err error) {
	err = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return err
	})
	return n, err
}
