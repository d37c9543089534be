package feed

// Bound changes how many changes are held for readers, and how many may have happened
// since the place of one that goes on.
func (f *Feed) Bound(kept, far int) { f.kept, f.far = kept, far }

// Readers is how many there are.
func (f *Feed) Readers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.window == nil {
		return 0
	}
	return f.window.readers
}
