module turbopump/loadgen

go 1.21
