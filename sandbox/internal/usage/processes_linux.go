package usage

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Below lists a process and all that descend from it, with numbers as seen
// from here, and counts their threads. It asks each of them for its children,
// so that it costs nothing on a host with many others.
func Below(pid int) (found []int, threads int) {
	found = []int{pid}
	seen := map[int]bool{pid: true}
	for i := 0; i < len(found); i++ {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", found[i]))
		if err != nil {
			continue // it has ended
		}
		threads += len(tasks)
		for _, t := range tasks {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", found[i], t.Name()))
			for field := range strings.FieldsSeq(string(b)) {
				if n, err := strconv.Atoi(field); err == nil && !seen[n] {
					found, seen[n] = append(found, n), true
				}
			}
		}
	}
	return found, threads
}

// Deleted measures files without a name that processes hold open, on the file
// systems of dirs. What is mapped but not open, or on its way through a
// socket, is not found.
func Deleted(pids []int, dirs []string) Size {
	var sum Size
	seen := map[inode]struct{}{}
	on := map[uint64]bool{}
	for _, dir := range dirs {
		var st unix.Stat_t
		if unix.Stat(dir, &st) == nil {
			on[uint64(st.Dev)] = true
		}
	}
	for _, pid := range pids {
		d, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			continue
		}
		names, _ := d.Readdirnames(-1)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(int(d.Fd()), name, &st, 0) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG || !on[uint64(st.Dev)] {
				continue
			}
			if _, ok := seen[inodeOf(&st)]; !ok {
				seen[inodeOf(&st)] = struct{}{}
				sum = sum.Add(sizeOf(&st))
			}
		}
		d.Close()
	}
	return sum
}

// Memory is what processes use that cannot be taken from them: their own pages,
// and shared ones divided by the number of sharers. It is exact only where a cheap
// upper bound is more than most.
func Memory(pids []int, most int64) int64 {
	var resident int64
	page := int64(os.Getpagesize())
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if f := bytes.Fields(b); err == nil && len(f) > 1 {
			n, _ := strconv.ParseInt(string(f[1]), 10, 64)
			resident += n * page
		}
	}
	if resident <= most {
		return resident
	}
	var exact int64
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // it has ended; that it may not be read cannot be: it is our own user's
		}
		exact += rollup(string(b))
	}
	return exact
}

// rollup adds anonymous and shared memory. Pages of files are the kernel's to
// drop. Kernels before 5.3 do not tell them apart.
func rollup(s string) (sum int64) {
	all, parts := int64(0), 0
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "Pss:":
			all = n << 10
		case "Pss_Anon:", "Pss_Shmem:":
			sum += n << 10
			parts++
		}
	}
	if parts == 0 {
		return all
	}
	return sum
}

// Mounted is what is in the file system at path: all of it, so it has to be
// the jail's own.
func Mounted(path string) Size {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil || st.Type != unix.TMPFS_MAGIC {
		return Size{}
	}
	return Size{int64(st.Blocks-st.Bfree) * st.Bsize, int64(st.Files - st.Ffree)}
}

// Free is what the file systems of dirs have left, each counted once. It falls
// by at least what a jail adds, unless another process frees space.
func Free(dirs []string) Size {
	var sum Size
	seen := map[uint64]bool{}
	for _, dir := range dirs {
		var at unix.Stat_t
		var st unix.Statfs_t
		if unix.Stat(dir, &at) != nil || seen[uint64(at.Dev)] || unix.Statfs(dir, &st) != nil {
			continue
		}
		seen[uint64(at.Dev)] = true
		sum = sum.Add(Size{int64(st.Bfree) * st.Bsize, int64(st.Ffree)})
	}
	return sum
}
