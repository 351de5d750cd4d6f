// Package engines damages databases of other engines in the ways in which
// package torture damages sift's, and prints what they answer beside what sift
// does. It is a module of its own, so that no user of sift inherits them.
//
//	cd internal/torture/engines && go test -v -run Damage          # one mask
//	cd internal/torture/engines && go test -v -run Damage -masks 4
package engines
