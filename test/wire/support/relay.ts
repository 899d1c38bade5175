import { connect } from 'node:net'

/**
 * A stdio server without a mind of its own: what it reads goes to a port of the test as it came, and what comes from there
 * it says. How it ends is told last, behind an EOT: `EOF` of its input, or the signal.
 */
const socket = connect(Number(process.argv[2]), '127.0.0.1')
process.stdin.pipe(socket, { end: false })
socket.pipe(process.stdout)

const leave = (how: string) => void socket.end(`\x04${how}`, () => process.exit())
process.stdin.once('end', () => leave('EOF'))
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.once(signal, leave)
socket.once('close', () => process.exit())
