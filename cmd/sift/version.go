package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

type versionCmd struct{}

func (versionCmd) Help() string {
	return `Prints the version of the module, the commit if it is known, the version of Go, and the
platform.

Example:

    sift version`
}

func (versionCmd) Run(k *kong.Kong, e *env) error { return versionFlag(true).BeforeReset(k, e) }

// versionFlag is --version.
type versionFlag bool

// BeforeReset prints the version before the rest of the command line is parsed.
func (versionFlag) BeforeReset(k *kong.Kong, e *env) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	_, err := fmt.Fprintln(k.Stdout, versionText(info))
	k.Exit(e.fail(err))
	return nil
}

// versionText identifies the build: the module's version, the commit if it is known,
// and the Go version and platform.
func versionText(info *debug.BuildInfo) string {
	version := info.Main.Version
	if version == "" {
		version = "(devel)"
	}
	var revision, modified string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			if s.Value == "true" {
				modified = ", modified"
			}
		}
	}
	text := "sift " + version
	if revision != "" {
		text += " (" + revision + modified + ")"
	}
	return fmt.Sprintf("%s %s %s/%s", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
