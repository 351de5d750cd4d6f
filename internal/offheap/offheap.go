// Package offheap allocates memory outside Go's heap, on Linux. The garbage collector does not free
// it, and does not let the heap grow by as much again between collections.
package offheap
