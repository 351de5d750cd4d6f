//go:build unix

package serve

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Clients leave descriptors for the store.
func TestClientsLeaveDescriptors(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = 1024
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Skip(err)
	}
	cfg, err := Config{MaxClients: 10_000}.resolve()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err != nil || cfg.MaxClients < 32 || cfg.MaxClients > 512 {
		t.Errorf("with 1024 descriptors: %d clients, %v", cfg.MaxClients, err)
	}
	if cfg, err := (Config{MaxClients: 3}).resolve(); err != nil || cfg.MaxClients != 3 {
		t.Errorf("%d clients, %v, want 3", cfg.MaxClients, err)
	}
}
