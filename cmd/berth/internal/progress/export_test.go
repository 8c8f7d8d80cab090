package progress

// Watched makes a bar that a person watches, whatever it is drawn to.
func (b *Bar) Watched() *Bar {
	b.draw()
	return b
}
