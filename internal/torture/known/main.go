// Command known plants bugs of other stores in sift, one at a time, and runs the tests that must
// find them. It changes no file: each bug is compiled in through an overlay.
//
//	go run ./internal/torture/known                  all of them; exits with 1 if one survives
//	go run ./internal/torture/known -list            lists them
//	go run ./internal/torture/known -only NAME,NAME  some of them
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	list := flag.Bool("list", false, "list the bugs and stop")
	only := flag.String("only", "", "the names of the bugs to plant, separated by commas; default: all")
	flag.Parse()
	if err := run(*list, *only); err != nil {
		fmt.Fprintln(os.Stderr, "known:", err)
		os.Exit(1)
	}
}

func run(list bool, only string) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	if list {
		for _, f := range chosen {
			fmt.Printf("%-24s %-26s %s\n", f.name, f.origin, f.was)
		}
		return nil
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "known")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var survivors []string
	for _, f := range chosen {
		c, err := f.plant(root, work)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		fmt.Printf("%-24s %-26s %s\n", f.name, f.origin, c)
		if c.test == "" {
			survivors = append(survivors, f.name)
		}
	}
	if len(survivors) > 0 {
		return fmt.Errorf("survived: %s", strings.Join(survivors, ", "))
	}
	return nil
}

func choose(only string) ([]fault, error) {
	if only == "" {
		return faults, nil
	}
	var chosen []fault
	for _, name := range strings.Split(only, ",") {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no bug %q", name)
		}
		chosen = append(chosen, faults[i])
	}
	return chosen, nil
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}
