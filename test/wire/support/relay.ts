import { connect } from 'node:net'

/**
 * A relay as a stdio server: copies its input to a port of the test, and the port's data to its output. The last line,
 * after an EOT, is how the process ended: `EOF` of its input, or the signal.
 */
const socket = connect(Number(process.argv[2]), '127.0.0.1')
process.stdin.pipe(socket, { end: false })
socket.pipe(process.stdout)

const leave = (how: string) => void socket.end(`\x04${how}`, () => process.exit())
process.stdin.once('end', () => leave('EOF'))
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.once(signal, leave)
socket.once('close', () => process.exit())
