"""Print where playwright keeps its chromium."""

from playwright.sync_api import sync_playwright

if __name__ == "__main__":
    with sync_playwright() as playwright:
        print(playwright.chromium.executable_path)
