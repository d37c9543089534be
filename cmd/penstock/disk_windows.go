package main

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// freeBytes is how much an ordinary user may still write below dir.
func freeBytes(dir string) (uint64, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return free, nil
}
