//go:build !linux

package main

// dropPages returns false: it cannot drop a file from the page cache.
func dropPages(path string) (gone bool, err error) { return false, nil }
