// Package interop has databases that sift wrote read by other engines. It is a
// module of its own, so that no user of sift inherits them.
package interop
