// Package offheap allocates memory outside Go's heap, on Linux. The garbage collector neither frees
// it nor counts it when it decides how far the heap may grow.
package offheap
