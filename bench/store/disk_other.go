//go:build !unix

package store

func syncDisks() {}
