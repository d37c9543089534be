package gitmonitor

// Marks reads the kernel's marks on a directory of an upper layer: it hides the one below,
// or shows the one of another name.
type Marks func(dir string) (opaque bool, redirect string, err error)
