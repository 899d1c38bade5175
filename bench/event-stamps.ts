/**
 * Preloaded into a gateway: notes of each event that carries the time at which its server wrote it when it was read from the server's
 * socket, and when it had been written to the agent's. Nothing in the gateway knows of it. Whenever its parent asks, it says what it has
 * noted since.
 */
import { openSync, readSync } from 'node:fs'
import { Socket } from 'node:net'

/** What became of one event, in milliseconds. */
export interface Passage {
  /** From the moment that its server was about to write it until the gateway read it. */
  readonly waitedMs: number
  /** From then on until the gateway had written it. */
  readonly insideMs: number
  /** How much of that the gateway was ready to go on, but other processes had the cores. */
  readonly heldUpMs: number
}

/** A moment on the clock that all processes of the machine share, and how long this one had waited for a core by then, in nanoseconds. */
interface Moment {
  readonly at: bigint
  readonly heldUp: bigint
}

const stamps = /at (\d+);/g
const readAt = new Map<string, Moment>()
let passages: Passage[] = []

/** What the kernel's scheduler keeps of this thread: time on a core, time in which it waited for one, in nanoseconds (Linux). */
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
    // The gateway repeats nothing in these runs: what was not read is none of it.
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
