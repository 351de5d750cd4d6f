package filter

// Default is the policy for a store that asks for none in particular.
func Default() Policy { return Bloom(defaultBloomBits) }
