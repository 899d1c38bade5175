import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { promisify } from 'node:util'
import { bound } from '../support/bound.ts'
import { main } from '../support/main.ts'
import { cleanUp, newFolder } from './support/gateway.ts'

after(cleanUp)

test('the script of completion offers commands, subcommands and options', async () => {
  const cwd = await newFolder()
  const own = join(cwd, 'breakwater')
  await writeFile(own, `#!/bin/sh\nexec '${process.execPath}' '${main}' "$@"\n`, { mode: 0o755 })
  const printed = async (...args: readonly string[]) =>
    (await promisify(execFile)(process.execPath, [main, 'completion', ...args], { env: bound() })).stdout
  const script = await printed()
  for (const shell of ['bash', 'zsh']) assert.equal(await printed(shell), script)
  const offered = (words: string) =>
    new Promise<string>((resolve, reject) => {
      const typed = `COMP_WORDS=(breakwater ${words}); COMP_CWORD=$((${'${#COMP_WORDS[@]}'} - 1)); _breakwater; echo "${'${COMPREPLY[*]}'}"`
      const env = bound({ ...process.env, PATH: `${cwd}:${process.env.PATH}` })
      execFile('bash', ['-c', `${script}\n${typed}`], { env }, (error, stdout, stderr) => {
        if (error === null) resolve(stdout.trim())
        else reject(new Error(stderr))
      })
    })
  assert.equal(await offered('exp'), 'experiment')
  assert.equal(await offered('chaos inj'), 'inject')
  assert.match(await offered('chaos inject tools --dur'), /^--duration\b/)
  assert.equal(await offered('help exp'), 'experiment')
  assert.equal(await offered('study retr'), 'retry-storm')
  assert.equal(await offered('completion z'), 'zsh')
})

test('a terminal with zsh completes what is typed', async (t) => {
  const there = await new Promise<boolean>((resolve) => {
    execFile('zsh', ['-f', '-c', 'zmodload zsh/zpty'], (error) => resolve(error === null))
  })
  if (!there) return t.skip('there is no zsh with its module zpty')
  const home = await newFolder()
  await writeFile(join(home, 'breakwater'), `#!/bin/sh\nexec '${process.execPath}' '${main}' "$@"\n`, {
    mode: 0o755,
  })
  // Without completion the command does not exist; the shell ends either way.
  const typed = String.raw`zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'autoload -U compinit bashcompinit; source <(breakwater completion)'
zpty -w -n shell $'breakwater help swe\t; exit\n'
while zpty -r shell line; do print -r -- $line; done`
  const env = bound({ ...process.env, HOME: home, TERM: 'dumb', PATH: `${home}:${process.env.PATH}` })
  const seen = await new Promise<string>((resolve, reject) => {
    execFile('zsh', ['-f', '-c', typed], { env }, (error, stdout) =>
      error === null ? resolve(stdout) : reject(error),
    )
  })
  assert.match(seen, /Simulates an agent's tasks at several error rates/)
})
