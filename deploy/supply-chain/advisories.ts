import { spawnSync } from 'node:child_process'
import { pathToFileURL } from 'node:url'
import { root } from './packages.ts'

/** What `npm audit --json` came to: the exit code to end with, and what to say. */
export interface Audited {
  readonly code: 0 | 1
  readonly lines: readonly string[]
}

interface Audit {
  readonly message?: string
  readonly vulnerabilities?: Readonly<Record<string, { readonly severity: string; readonly range: string }>>
}

/** Reads what `npm audit --json` printed. A registry that has no advisories to give is said to be one, and is no failure. */
export function readAudit(stdout: string): Audited {
  const audit = auditIn(stdout)
  if (audit?.vulnerabilities === undefined) {
    const why = audit?.message ?? 'npm audit gave no answer'
    return { code: 0, lines: [`not checked: the registry answers no questions about advisories (${why})`] }
  }
  const found = Object.entries(audit.vulnerabilities)
  if (found.length === 0) return { code: 0, lines: ['no advisories about what is installed with Breakwater'] }
  return { code: 1, lines: found.map(([name, { severity, range }]) => `${severity}: ${name} ${range}`) }
}

function auditIn(stdout: string): Audit | undefined {
  try {
    return JSON.parse(stdout) as Audit
  } catch {
    return undefined
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const { stdout } = spawnSync('npm', ['audit', '--omit', 'dev', '--json'], { cwd: root, encoding: 'utf8' })
  const { code, lines } = readAudit(stdout)
  for (const line of lines) console.log(line)
  process.exitCode = code
}
