import type { Commands } from '../../src/commands/listed.ts'

/** A block of a page with the output of a command: the command is above the block, in a comment. */
const BLOCK = /<!-- breakwater (.*) -->\n+```text\n[^]*?```/g

/** Resolves to the output of `breakwater` with these arguments. */
export type Printing = (args: readonly string[]) => Promise<string>

/** Returns a page with the present output of its commands. */
export async function withOutputs(page: string, printed: Printing): Promise<string> {
  const outputs = new Map<string, string>()
  for (const [, line = ''] of page.matchAll(BLOCK))
    if (!outputs.has(line)) outputs.set(line, await printed(line.split(' ')))
  return page.replace(
    BLOCK,
    (_, line: string) => `<!-- breakwater ${line} -->\n\n\`\`\`text\n${outputs.get(line)}\n\`\`\``,
  )
}

/** Runs these commands for their output; rejects when a command's exit code is not 0. */
export function printingOf(commands: Commands): Printing {
  return async ([name = '', ...args]) => {
    const command = commands[name]
    if (command === undefined) throw new Error(`there is no command "${name}"`)
    const lines: string[] = []
    const errors: string[] = []
    const out = { stdout: (line: string) => lines.push(line), stderr: (line: string) => errors.push(line) }
    const code = await (await command.load())(args, out as never, {})
    if (code !== 0)
      throw new Error(`breakwater ${name} ${args.join(' ')} ended with ${code}: ${errors.join()}`)
    return lines.join('\n').replace(/[ ]+$/gm, '').trim()
  }
}
