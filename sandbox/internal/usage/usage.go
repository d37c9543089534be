// Package usage measures what a jail uses of things that the kernel keeps no
// account of: the growth of directories, files that were deleted and are still
// open, and memory where there is no control group.
//
// It promises to be harder to fool than a walk by paths: directories are
// opened below directories, symbolic links are never followed, other file
// systems not entered, and a directory that was made unreadable is read.
package usage

// A Size is an amount of disk. Bytes are those of allocated blocks: a hole in
// a file has none. Inodes are files, directories and everything else with a
// name.
type Size struct {
	Bytes  int64
	Inodes int64
}

// Add returns the sum of two sizes.
func (s Size) Add(o Size) Size { return Size{s.Bytes + o.Bytes, s.Inodes + o.Inodes} }

// Sub returns the difference of two sizes.
func (s Size) Sub(o Size) Size { return Size{s.Bytes - o.Bytes, s.Inodes - o.Inodes} }

// Exceeds reports whether s is more than most, where a zero is no limit.
func (s Size) Exceeds(most Size) bool {
	return (most.Bytes > 0 && s.Bytes > most.Bytes) || (most.Inodes > 0 && s.Inodes > most.Inodes)
}
