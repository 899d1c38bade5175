/**
 * Preloaded into a gateway, without the gateway's help. Records each event that carries its write time: when the
 * gateway read the event from the server's socket, and when the event had been written to the agent's socket. Sends the
 * records since the last request to its parent on request.
 */
import { openSync, readSync } from 'node:fs'
import { Socket } from 'node:net'

/** The passage of one event, in milliseconds. */
export interface Passage {
  /** From just before the server's write until the gateway's read. */
  readonly waitedMs: number
  /** From the gateway's read until its write. */
  readonly insideMs: number
  /** Part of `insideMs` in which the gateway was runnable but other processes had the cores. */
  readonly heldUpMs: number
}

/** A moment on the machine's shared clock, with this thread's total wait for a core so far; both in nanoseconds. */
interface Moment {
  readonly at: bigint
  readonly heldUp: bigint
}

const stamps = /at (\d+);/g
const readAt = new Map<string, Moment>()
let passages: Passage[] = []

/** Scheduler statistics of this thread (Linux): time on a core and time waiting for a core, in nanoseconds. */
const scheduler = openSync('/proc/thread-self/schedstat', 'r')
const line = Buffer.alloc(128)

const { push, _write: write, _writev: writev } = Socket.prototype

Socket.prototype.push = function (this: Socket, chunk: Buffer | null, ...rest) {
  if (chunk !== null) for (const stamp of stampsIn(chunk)) readAt.set(stamp, now())
  return push.call(this, chunk, ...rest)
}

Socket.prototype._write = function (this: Socket, chunk: Buffer | string, ...rest) {
  write.call(this, chunk, ...rest)
  written(stampsIn(chunk))
}

Socket.prototype._writev = function (this: Socket, chunks, done) {
  writev?.call(this, chunks, done)
  for (const { chunk } of chunks as { chunk: Buffer | string }[]) written(stampsIn(chunk))
}

function now(): Moment {
  const at = process.hrtime.bigint()
  const [, heldUp = '0'] = line.toString('latin1', 0, readSync(scheduler, line, 0, line.length, 0)).split(' ')
  return { at, heldUp: BigInt(heldUp) }
}

function stampsIn(chunk: Buffer | string): string[] {
  const text = typeof chunk === 'string' ? chunk : chunk.toString('latin1')
  return Array.from(text.matchAll(stamps), ([, stamp]) => String(stamp))
}

function written(found: readonly string[]): void {
  for (const stamp of found) {
    const from = readAt.get(stamp)
    // The gateway repeats nothing in these runs, so an event without a read came from elsewhere.
    if (from === undefined) continue
    readAt.delete(stamp)
    const to = now()
    passages.push({
      waitedMs: ms(BigInt(stamp), from.at),
      insideMs: ms(from.at, to.at),
      heldUpMs: ms(from.heldUp, to.heldUp),
    })
  }
}

const ms = (from: bigint, to: bigint) => Number(to - from) / 1e6

process.on('message', (asked) => {
  if (asked !== 'passages') return
  process.send?.(passages)
  passages = []
  readAt.clear()
})
process.channel?.unref()
