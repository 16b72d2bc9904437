package main

import "math/bits"

// histogram counts durations in buckets of 1/32 of a power of two: at most 3 % wide.
type histogram struct {
	buckets [64 * subBuckets]uint64
	count   uint64
	max     int64
}

const (
	subBits    = 5
	subBuckets = 1 << subBits
)

func bucketOf(ns int64) int {
	if ns < subBuckets {
		return int(max(ns, 0))
	}
	shift := bits.Len64(uint64(ns)) - subBits - 1
	return (shift+1)<<subBits | int(ns>>shift)&(subBuckets-1)
}

func bucketTop(index int) int64 {
	if index < subBuckets {
		return int64(index)
	}
	shift := index>>subBits - 1
	return (int64(index&(subBuckets-1))+subBuckets+1)<<shift - 1
}

func (h *histogram) add(ns int64) {
	h.buckets[bucketOf(ns)]++
	h.count++
	h.max = max(h.max, ns)
}

// quantile is the upper edge of the bucket that holds it, in microseconds.
func (h *histogram) quantile(q float64) float64 {
	left := uint64(float64(h.count) * q)
	for i, n := range h.buckets {
		if n > left {
			return float64(bucketTop(i)) / 1000
		}
		left -= n
	}
	return float64(h.max) / 1000
}
