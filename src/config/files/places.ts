import { homedir } from 'node:os'
import { basename, dirname, isAbsolute, join, resolve, sep } from 'node:path'
import type { Env } from './interpolate.ts'

/** Folders in which clients keep the config of a project: what is relative in it is relative to the project. */
const ofProject: ReadonlySet<string> = new Set([
  '.vscode',
  '.cursor',
  '.roo',
  '.gemini',
  '.zed',
  '.kiro',
  '.windsurf',
  '.amazonq',
])

/** The folder that relative paths in a config file are relative to: its own, or that of the project that has it in a folder of a client. */
export function folderOf(file: string): string {
  const folder = dirname(resolve(file))
  return ofProject.has(basename(folder)) ? dirname(folder) : folder
}

/** The variables that stand for places, by the names that VS Code and Cursor gave them. No secrets. */
export function placesOf(file: string, env: Env): Readonly<Record<string, string>> {
  const folder = folderOf(file)
  return {
    workspaceFolder: folder,
    workspaceFolderBasename: basename(folder),
    userHome: env.HOME ?? env.USERPROFILE ?? homedir(),
    cwd: process.cwd(),
    pathSeparator: sep,
    '/': sep,
  }
}

/** A path of a config as one that holds wherever the gateway was started. */
export function fromFolder(folder: string, path: string): string {
  return isAbsolute(path) ? path : join(folder, path)
}

/** Whether a command is a path from the folder where it is, and not a program to be looked for. */
export function isRelativeCommand(command: string): boolean {
  return /^\.{1,2}[\\/]/.test(command)
}
