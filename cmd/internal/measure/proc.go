package measure

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Resident is the memory that a process has of the host's, in bytes.
func Resident(pid int) (float64, error) { return status(pid, "VmRSS") }

// MostResident is the most that a process has ever had of the host's memory, in bytes.
func MostResident(pid int) (float64, error) { return status(pid, "VmHWM") }

func status(pid int, field string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut(string(text), field+":")
	if !found {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	kib, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
	return kib * 1024, err
}

// ticks is how many units of processor time Linux tells a second in, on every architecture
// that Go has.
const ticks = 100

// Processor is the processor time that a process has used, without its children.
func Processor(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name of the program, in brackets, may have spaces.
	fields := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("process %d: its times cannot be read", pid)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticks, err
}

// Load is how many processes of the host have wanted a processor in the last minute.
func Load() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	return strconv.ParseFloat(first, 64)
}

// Descriptors is how many files a process has open.
func Descriptors(pid int) (float64, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return float64(len(entries)), err
}

// Disk is what a directory takes on the disk, in bytes. What vanishes meanwhile takes nothing.
func Disk(dir string) (bytes float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it has been removed meanwhile
		}
		if info, err := d.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += float64(stat.Blocks * 512)
			}
		}
		return nil
	})
	return bytes, err
}

// Shared is the memory of a process, in bytes, where what it shares with others counts in parts
// (PSS); 0 of one that has ended.
func Shared(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "\nPss:")
	for field := range strings.FieldsSeq(after) {
		kib, _ := strconv.ParseFloat(field, 64) // of a process that ends it is empty
		return kib * 1024
	}
	return 0
}

// Below lists the processes that descend from one.
func Below(pid int) (found []int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)) // of a process that has ended there are none
	for _, t := range tasks {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		for field := range strings.FieldsSeq(string(children)) {
			if child, err := strconv.Atoi(field); err == nil {
				found = append(append(found, child), Below(child)...)
			}
		}
	}
	return found
}

// Name is the name of a process's program, of 15 characters at most; "" of one that has ended.
func Name(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(text))
}
