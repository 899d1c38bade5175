import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'

/** Returns a free loopback port, for programs that must be given a port. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo
      server.close(() => resolve(port))
    })
  })
}

const LISTENS = '0A'
const LOOPBACK = ['0100007F', '00000000000000000000000001000000', '0000000000000000FFFF00000100007F']

/** Returns the non-loopback addresses on which a process listens, in the kernel's notation. Linux only. */
export function foreignListeners(pid: number): string[] {
  const sockets = new Set<string>()
  for (const fd of readdirSync(`/proc/${pid}/fd`)) {
    try {
      const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1]
      if (inode !== undefined) sockets.add(inode)
    } catch {
      // The socket was closed meanwhile.
    }
  }
  return ['tcp', 'tcp6'].flatMap((kind) =>
    foreignIn(readFileSync(`/proc/${pid}/net/${kind}`, 'latin1'), sockets),
  )
}

export function foreignIn(table: string, inodes: ReadonlySet<string>): string[] {
  return table
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , , state, , , , , , inode = '']) => state === LISTENS && inodes.has(inode))
    .map(([, local = '']) => local)
    .filter((local) => !LOOPBACK.includes(local.split(':')[0] ?? ''))
}
