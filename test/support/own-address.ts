/**
 * An address of the loopback network at which only our process listens. A server that restarts at this address finds
 * its port free: every other process takes its free ports at 127.0.0.1. Only Linux has the whole network.
 */
export const ownAddress =
  process.platform === 'linux'
    ? `127.${1 + (process.pid >> 16)}.${(process.pid >> 8) & 255}.${process.pid & 255}`
    : '127.0.0.1'
